"""Model store: cards of models, and imports of models from other sites."""
