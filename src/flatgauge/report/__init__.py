"""The page: one self-contained HTML file, drawn from a report's plain data alone."""
