"""The version of Backburner."""

VERSION = "0.1.0"
