"""Time limits of sessions: idle timeout, lifetime, and the activity that postpones the end."""
