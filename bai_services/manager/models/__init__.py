"""Model store: cards of models, their deployment, and imports of models."""
