"""REST API, dashboard, and the HTTP client of the API."""
