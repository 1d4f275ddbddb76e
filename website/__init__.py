"""The course as static pages: `make site` builds them into `site/`. docs/site.md says how, and with what."""
