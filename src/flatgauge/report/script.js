"use strict";
(function () {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
  // What is folded is shown where a link points into it, and on paper.
  const unfold = () => {
    const place = location.hash && document.querySelector(location.hash + " > details");
    if (place) place.open = true;
  };
  addEventListener("hashchange", unfold);
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
  unfold();
})();
