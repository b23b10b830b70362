// The theme is chosen before anything is drawn: the one that was chosen here before, else the system's.
"use strict";
try {
  const chosen = localStorage.getItem("placement-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* Storage may be switched off; the system's theme counts then. */ }
