/* Shared by the programs of this folder: strings as views, and the end of the program if a call
 * fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trafo.h>

/* Ends the program where a call fails. */
static inline void must(trafo_error* error) {
  if (!error) return;
  fprintf(stderr, "%s: %s\n", trafo_error_origin(error), trafo_error_message(error));
  trafo_error_free(error);
  exit(1);
}

static inline trafo_string_view text(const char* string) {
  const trafo_string_view view = {string, strlen(string)};
  return view;
}
