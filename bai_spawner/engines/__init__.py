"""How a session is started, watched and ended: one engine per kind of agent."""
