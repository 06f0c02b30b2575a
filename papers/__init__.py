"""The papers' experiments made again: declared runs, stored results, generated pages."""
