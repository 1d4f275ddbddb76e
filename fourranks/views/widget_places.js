// Places of a widget: elements of its own class, in the outputs of notebooks, which come, move and go.

// Keeps a view in each place, and returns what ends them all. `looks` is the class of a view's own element.
function followPlaces(model, View, looks) {
  const places = document.getElementsByClassName(model.get("place"));
  const views = new Map();
  const follow = () => {
    for (const [place, view] of views) {
      if (place.isConnected) continue;
      view.end();
      views.delete(place);
    }
    for (const place of places) {
      // Another notebook or a console with the same kernel has a widget of its own.
      if (!place.querySelector(`.${looks}`)) views.set(place, new View(model, place));
    }
  };
  const observer = new MutationObserver(follow);
  observer.observe(document.body, { childList: true, subtree: true });
  follow();
  return () => {
    observer.disconnect();
    for (const view of views.values()) view.end();
  };
}

