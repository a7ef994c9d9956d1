"""A view computed again beside the live one, compared and switched."""
