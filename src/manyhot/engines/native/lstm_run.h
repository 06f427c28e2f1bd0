/* LSTM layers. Included by engine.c. */

/* How many numbers of workspace a layer needs, forward or (with out_grad) backward. */
int64_t manyhot_lstm_room(const lstm_layer *l) {
    lstm_room w = {0};
    return lstm_divide(l, &w);
}

/* One direction of a layer: forward, or backward if there is an out_grad. Calls with different workspaces may run at the same
 * time. */
void manyhot_lstm(const lstm_layer *l) {
    lstm_room w = {0};
    const variant *v = &variants[l->variant];
    int64_t at = 0;
    lstm_divide(l, &w);
    for (int64_t r = 0; r < l->rows && l->kept; r++) {
        w.lengths[r] = 0;
        for (int64_t t = 0; t < l->steps && l->starts[t + 1] - l->starts[t] > r; t++, w.lengths[r]++)
            w.tokens[at++] = (int32_t)(l->starts[t] + r);
    }
    (l->out_grad ? v->lstm_backward : v->lstm_forward)(l, &w);
}

/* Lets lstm.py detect a library of another version. */
int64_t manyhot_lstm_size(void) { return (int64_t)sizeof(lstm_layer); }
