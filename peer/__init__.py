"""The conversation: one session per call, turn taking, ASR, LLM, TTS, and the softphone."""
