"""The durable record of chats with an assistant that may do things."""
