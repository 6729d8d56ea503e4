/* The functions of Trafo that the page calls. A folder has a model: model.safetensors and
 * spm.model. Functions with a result return 0, or -1 and page_error() has the reason. One call at a
 * time. */
#pragma once

/* A new small model in `folder`, and a vocabulary of at most `vocabulary` tokens, for a file with
 * lines of source, TAB, target. */
int page_create(const char* folder, const char* pairs, int vocabulary, int threads);
/* Trains the model in `folder` up to `updates` updates on such a file, writes it back, and calls
 * page_event() after each update. If `run` has checkpoints, training resumes from the newest one.
 */
int page_train(const char* folder, const char* pairs, const char* run, int updates, double rate,
               int threads);
/* Ends training after its update, which is no error. On any thread. */
void page_stop(void);
/* Translates lines. page_output() has the same number of lines. */
int page_translate(const char* folder, const char* lines, int beam, int threads);
const char* page_output(void);
/* Tokens of the translations, their ends included. */
double page_output_tokens(void);
const char* page_error(void);

/* Of the program: hears of an update of training, with the loss per token. */
void page_event(double update, double loss);
