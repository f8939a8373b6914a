"""The synthetic agents: profiles, conversations, pacing and the streaming client."""
