"""Which release of Backburner this is."""

VERSION = "0.1.0"
