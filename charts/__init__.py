"""The Helm chart, and what makes the parts of it that are generated: `make chart` (python -m charts)."""
