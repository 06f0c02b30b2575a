"""The colours and marks that the figures share."""

BLUE, RED, GREY = "#2b6cb0", "#c53030", "#4a5568"
MARKS = "osD^v<>pPX*h"
COLORS = [f"C{index}" for index in range(10)] + ["black", GREY]
