"""Model store: models, and imports of models."""
