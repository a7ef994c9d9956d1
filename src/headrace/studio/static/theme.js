// Sets the theme before anything is drawn: the one chosen here, else that of the system.
(() => {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
