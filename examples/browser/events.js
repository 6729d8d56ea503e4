// Functions that the engine calls on its threads; they run on the page's own.
mergeInto(LibraryManager.library, {
  page_event__proxy: "async",
  page_event__sig: "vdd",
  page_event: function(update, loss) { Module["heard"](update, loss); },
  page_done__proxy: "async",
  page_done__sig: "vi",
  page_done: function(result) { Module["done"](result); },
});
