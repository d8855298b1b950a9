"""`python -m engine_assistant.cli`: the command, where its script is not on the path."""

from engine_assistant.cli import main

if __name__ == "__main__":
    main()
