"""Floor 1: decisions. Plain functions over rows that raise a refusal or return a plan."""
