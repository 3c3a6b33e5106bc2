"""Long-running tools that find what tests of minutes cannot: chaos, contention, exploration, hostile inputs, flakes."""
