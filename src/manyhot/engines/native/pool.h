/* The threads of the native engine. Included by engine.c, whose function take_items every thread runs.
 *
 * If torch's OpenMP runtime was found, its threads are used: after an operation they spin for milliseconds and would compete
 * with any others. They do not survive fork, and OpenMP does not notice that. So a forked child, and a process without torch's
 * runtime, uses a pool of its own. */

typedef void (*team)(void (*)(void *), void *, unsigned, unsigned); /* GOMP_parallel */

static team shared_team;
static int forked;

static void take_items_of(void *w) { take_items(w); }

/* A pool that sleeps between calls. One call uses it at a time; a concurrent call from another thread runs single-threaded. */
static struct {
    pthread_mutex_t owner, lock;
    pthread_cond_t start, done;
    int64_t size, wanted, busy, round;
    work *work;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .start = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void *pool_thread(void *number) {
    int64_t me = (int64_t)(intptr_t)number, seen = 0;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (pool.round == seen || me >= pool.wanted) {
            seen = pool.round;
            pthread_cond_wait(&pool.start, &pool.lock);
        }
        seen = pool.round;
        work *w = pool.work;
        pthread_mutex_unlock(&pool.lock);
        take_items(w);
        pthread_mutex_lock(&pool.lock);
        if (--pool.busy == 0) pthread_cond_signal(&pool.done);
    }
    return NULL;
}

/* Threads do not survive fork, and a lock may have been held, so the child starts with an empty pool. */
static void forget_pool(void) {
    pthread_mutex_init(&pool.owner, NULL), pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.start, NULL), pthread_cond_init(&pool.done, NULL);
    pool.size = pool.wanted = pool.busy = pool.round = 0;
    forked = 1;
}

static void watch_fork(void) { pthread_atfork(NULL, NULL, forget_pool); }

/* Must be called before any other function, with NULL if there is no runtime to share. */
void manyhot_share_threads(team run) {
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, watch_fork);
    shared_team = run;
}

static void grow_pool(int64_t size) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by Python's threads */
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    while (pool.size < size && !pthread_create(&thread, &detached, pool_thread, (void *)(intptr_t)pool.size)) pool.size++;
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void spread(work *w, int64_t items, int64_t threads) {
    w->items = items;
    atomic_store(&w->next, 0);
    int64_t others = (threads < items ? threads : items) - 1;
    if (others > 0 && shared_team && !forked) { /* as many as torch uses: another number would start new threads */
        shared_team(take_items_of, w, (unsigned)w->j->threads, 0);
        return;
    }
    if (others <= 0 || pthread_mutex_trylock(&pool.owner)) {
        take_items(w);
        return;
    }
    grow_pool(others);
    pthread_mutex_lock(&pool.lock);
    pool.work = w;
    pool.wanted = pool.busy = others < pool.size ? others : pool.size;
    pool.round++;
    pthread_cond_broadcast(&pool.start);
    pthread_mutex_unlock(&pool.lock);
    take_items(w);
    pthread_mutex_lock(&pool.lock);
    while (pool.busy) pthread_cond_wait(&pool.done, &pool.lock);
    pool.wanted = 0;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.owner);
}
