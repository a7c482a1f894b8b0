"""Reports: from stored records to derived figures, and from those to HTML, text, CSV, JSON and
Markdown.
"""
