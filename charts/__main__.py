"""Write what is generated in the chart: the table of its README, the schema of its settings, the dashboard."""

from __future__ import annotations

from charts import dashboard, reference, schema


def main() -> None:
    """Write all generated files."""
    table = reference.markdown_table(reference.VALUES.read_text())
    reference.README.write_text(reference.readme(reference.README.read_text(), table))
    schema.SCHEMA.write_text(schema.with_settings(schema.SCHEMA.read_text()))
    dashboard.FILE.write_text(dashboard.text())


if __name__ == "__main__":
    main()
