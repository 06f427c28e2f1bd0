/* The words of texts: their positions, a number for each distinct word, and counts per row. Included by engine.c. */

enum { BLANK, LETTER, MARK, TEXT_END };

/* A word is a run of letters, or one mark. `kinds` has one of the above for every character. `row_ends[r]` is the number of
 * words up to the end of text r. Returns the number of words. */
int64_t manyhot_words_cut(const uint32_t *codes, int64_t size, const uint8_t *kinds, int64_t *starts, int32_t *lengths,
                          int64_t *row_ends) {
    int64_t count = 0, row = 0, at = 0;
    while (at < size) {
        uint8_t kind = kinds[codes[at]];
        int64_t first = at++;
        if (kind == LETTER)
            while (at < size && kinds[codes[at]] == LETTER) at++;
        if (kind == LETTER || kind == MARK) {
            starts[count] = first, lengths[count++] = (int32_t)(at - first);
        } else if (kind == TEXT_END) {
            row_ends[row++] = count;
        }
    }
    return count;
}

static uint64_t word_hash(const uint32_t *word, int64_t length) {
    uint64_t h = 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i < length; i++) h = (h ^ word[i]) * 0xFF51AFD7ED558CCDu, h ^= h >> 32;
    return h;
}

typedef struct {
    uint32_t check; /* the upper half of the hash */
    int32_t number; /* -1: empty */
} word_slot;

static word_slot *empty_slots(int64_t size) {
    word_slot *slots = malloc((size_t)size * sizeof *slots);
    if (slots) memset(slots, 0xff, (size_t)size * sizeof *slots);
    return slots;
}

/* Double the number of slots. The hashes are recomputed from the words. */
static word_slot *more_slots(word_slot *slots, int64_t size, const uint32_t *codes, const int64_t *starts, const int32_t *lengths,
                             const int64_t *firsts, int64_t distinct) {
    word_slot *wider = empty_slots(2 * size);
    for (int64_t n = 0; wider && n < distinct; n++) {
        uint64_t h = word_hash(codes + starts[firsts[n]], lengths[firsts[n]]);
        int64_t at = (int64_t)(h & (uint64_t)(2 * size - 1));
        while (wider[at].number >= 0) at = (at + 1) & (2 * size - 1);
        wider[at].check = (uint32_t)(h >> 32), wider[at].number = (int32_t)n;
    }
    free(slots);
    return wider;
}

/* Number the words in the order of first appearance; equal words get the same number, a word with a negative length gets -1.
 * `firsts[n]` is the first word with number n. Returns the number of distinct words, -1 if memory ran out. */
int64_t manyhot_words_number(const uint32_t *codes, const int64_t *starts, const int32_t *lengths, int64_t count, int32_t *numbers,
                             int64_t *firsts) {
    int64_t size = 1 << 16, distinct = 0;
    word_slot *slots = empty_slots(size);
    for (int64_t w = 0; slots && w < count; w++) {
        if (lengths[w] < 0) {
            numbers[w] = -1;
            continue;
        }
        const uint32_t *word = codes + starts[w];
        uint64_t h = word_hash(word, lengths[w]);
        int64_t at = (int64_t)(h & (uint64_t)(size - 1));
        for (;; at = (at + 1) & (size - 1)) {
            int32_t n = slots[at].number;
            if (n < 0) break;
            if (slots[at].check == (uint32_t)(h >> 32) && lengths[firsts[n]] == lengths[w] &&
                !memcmp(codes + starts[firsts[n]], word, (size_t)lengths[w] * 4))
                break;
        }
        if (slots[at].number < 0) {
            slots[at].check = (uint32_t)(h >> 32), slots[at].number = (int32_t)distinct;
            firsts[distinct] = w, numbers[w] = (int32_t)distinct++;
            if (2 * distinct > size) slots = more_slots(slots, size, codes, starts, lengths, firsts, distinct), size *= 2;
        } else
            numbers[w] = slots[at].number;
    }
    if (!slots) return -1;
    free(slots);
    return distinct;
}

static void sort_columns(int32_t *row, int64_t size) {
    if (size > 64) {
        qsort(row, (size_t)size, 4, compare_columns);
        return;
    }
    for (int64_t i = 1; i < size; i++) {
        int32_t own = row[i];
        int64_t j = i;
        for (; j > 0 && row[j - 1] > own; j--) row[j] = row[j - 1];
        row[j] = own;
    }
}

/* The distinct numbers of each row, in increasing order, with their counts; negative numbers are left out. `found` may be
 * `numbers`. `ends[r]` is the number of entries up to the end of row r. Returns the total number of entries, -1 if memory ran
 * out. */
int64_t manyhot_words_count(const int64_t *offsets, int64_t rows, const int32_t *numbers, int32_t *found, float *counts,
                            int64_t *ends) {
    int64_t at = 0, longest = 0;
    for (int64_t r = 0; r < rows; r++)
        if (offsets[r + 1] - offsets[r] > longest) longest = offsets[r + 1] - offsets[r];
    int32_t *row = malloc((size_t)(longest + 1) * 4);
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t size = 0;
        for (int64_t e = offsets[r]; e < offsets[r + 1]; e++)
            if (numbers[e] >= 0) row[size++] = numbers[e];
        sort_columns(row, size);
        for (int64_t i = 0; i < size; i++) {
            if (i && row[i] == row[i - 1])
                counts[at - 1] += 1;
            else
                found[at] = row[i], counts[at++] = 1;
        }
        ends[r] = at;
    }
    free(row);
    return at;
}

/* Count the rows that contain each feature. Word w has the features columns[w * per] to columns[w * per + per - 1]; negative
 * ones are skipped. `seen` holds the last row of each feature and must be -1 everywhere at the start. */
void manyhot_words_frequencies(const int64_t *offsets, int64_t rows, const int32_t *words, const int32_t *columns, int64_t per,
                               int32_t *seen, int64_t *counts) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t e = offsets[r]; e < offsets[r + 1]; e++)
            for (int64_t j = 0; j < per; j++) {
                int32_t own = columns[words[e] * per + j];
                if (own < 0 || seen[own] == r) continue;
                seen[own] = (int32_t)r, counts[own]++;
            }
}

/* TF-IDF rows of norm 1: a feature that occurs n times in a row has the value logs[n] idf[feature] before the row is
 * normalised. The features of words are as above; `more`, if it is not NULL, has a further one for each place of a word, or a
 * negative number. `found` and `values` have space for every feature of every word; `ends[r]` is the number of entries up to the
 * end of row r. Returns the total number of entries, -1 if memory ran out. */
int64_t manyhot_words_weigh(const int64_t *offsets, int64_t rows, const int32_t *words, const int32_t *columns, int64_t per,
                            const int32_t *more, const float *logs, const float *idf, int32_t *found, float *values,
                            int64_t *ends) {
    int64_t at = 0, longest = 0;
    for (int64_t r = 0; r < rows; r++)
        if (offsets[r + 1] - offsets[r] > longest) longest = offsets[r + 1] - offsets[r];
    int32_t *row = malloc((size_t)(longest * (per + 1) + 1) * 4);
    if (!row) return -1;
    for (int64_t r = 0; r < rows; r++) {
        int64_t size = 0, first = at;
        for (int64_t e = offsets[r]; e < offsets[r + 1]; e++) {
            for (int64_t j = 0; j < per; j++) {
                int32_t own = columns[words[e] * per + j];
                if (own >= 0) row[size++] = own;
            }
            if (more && more[e] >= 0) row[size++] = more[e];
        }
        sort_columns(row, size);
        double total = 0;
        for (int64_t i = 0, next; i < size; i = next) {
            for (next = i + 1; next < size && row[next] == row[i];) next++;
            float value = logs[next - i] * idf[row[i]];
            found[at] = row[i], values[at++] = value;
            total += (double)value * (double)value;
        }
        double norm = sqrt(total);
        for (int64_t e = first; e < at; e++) values[e] = (float)((double)values[e] / norm);
        ends[r] = at;
    }
    free(row);
    return at;
}
