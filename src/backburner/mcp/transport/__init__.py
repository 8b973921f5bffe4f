"""Serving: over stdio, or over HTTP with the checks in front."""
