/* Runs functions of engine.h on a thread. The page's own thread must stay free: it starts the
 * threads of the engine, and reads and writes its files. */
#include <emscripten.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum kind { kCreate, kTrain, kTranslate };

static struct {
  enum kind kind;
  char *folder, *text, *run;
  int number, threads;
  double rate;
} call;

/* Of page.js: the call has ended with a result of engine.h. */
void page_done(int result);

static void* work(void* unused) {
  (void)unused;
  switch (call.kind) {
    case kCreate:
      page_done(page_create(call.folder, call.text, call.number, call.threads));
      break;
    case kTrain:
      page_done(page_train(call.folder, call.text, call.run, call.number, call.rate, call.threads));
      break;
    case kTranslate:
      page_done(page_translate(call.folder, call.text, call.number, call.threads));
      break;
  }
  return NULL;
}

static void keep(char** kept, const char* text) {
  free(*kept);
  *kept = strdup(text);
}

/* Begins a call, which ends with page_done(). -1: there is no thread for it. */
EMSCRIPTEN_KEEPALIVE int page_start(int kind, const char* folder, const char* text, const char* run,
                                    int number, double rate, int threads) {
  call.kind = (enum kind)kind;
  keep(&call.folder, folder);
  keep(&call.text, text);
  keep(&call.run, run);
  call.number = number;
  call.rate = rate;
  call.threads = threads;
  if (!call.folder || !call.text || !call.run) return -1;
  pthread_t thread;
  if (pthread_create(&thread, NULL, work, NULL) != 0) return -1;
  pthread_detach(thread);
  return 0;
}
