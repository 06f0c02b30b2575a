"""Other people's tools. Each file needs a package of its own and is imported by its users."""
