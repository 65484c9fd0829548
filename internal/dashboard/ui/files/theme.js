// Sets the chosen theme before anything is drawn. It is not a module, because modules run too late for that.
(() => {
  let theme = '';
  try { theme = localStorage.getItem('muster.theme') || ''; } catch { /* storage is off: the system decides */ }
  if (theme) document.documentElement.dataset.theme = theme;
})();
