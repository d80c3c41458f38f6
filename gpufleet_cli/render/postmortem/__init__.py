"""How a postmortem looks: one HTML file, Markdown, and the record beside it."""
