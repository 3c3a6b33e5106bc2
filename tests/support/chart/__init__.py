"""What the tests of the chart rest on: Helm, and a cluster in which what it installed really runs."""
