"""Everything that is drawn for people, and the same as a document for programs."""
