"""Makes the course's notebooks from source/, runs them, and says when they are out of date."""
