"""What benchfarm knows, as frozen records: declared, observed and judged are different types."""
