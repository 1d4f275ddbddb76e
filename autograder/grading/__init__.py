"""From what students hand in to a gradebook: `grade` a class, `referee` one submission."""
