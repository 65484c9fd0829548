package ui

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// modules are those of the page, for tests of single modules.
const modules = `const load = (name) => import(document.querySelector('script[type=module]').src.replace('app.js', name));`

// A log that is followed is read through one buffer, completely and in order: a buffer for each piece is more than a
// browser collects.
func TestLogIsReadThroughOneBuffer(t *testing.T) {
	tab := page(t, daemon{}, "/")
	got := eval[struct {
		Size, Rows, Pieces, Lent int
		Wrong, Last              string
	}](t, tab, `(async () => { `+modules+`
		const { Log } = await load('logdata.js');
		const line = (n) => String(n).padStart(15, '0') + '\n', block = 65536, all = 512; // 32 MiB
		let pieces = 0, lent = 0;
		window.fetch = async (url) => {
			const q = new URL(url, location.href).searchParams;
			if (!q.get('follow')) return new Response(new Uint8Array(0), { headers: { 'Muster-Offset': '0' } });
			let n = 0, rest = new Uint8Array(0);
			return new Response(new ReadableStream({ type: 'bytes', pull(c) {
				if (!rest.length) {
					if (n === all) { c.close(); c.byobRequest?.respond(0); return; }
					rest = new TextEncoder().encode(Array.from({ length: block / 16 }, (_, i) => line(n * block / 16 + i)).join(''));
					n++;
				}
				pieces++;
				const view = c.byobRequest?.view;
				if (!view) { c.enqueue(rest); rest = new Uint8Array(0); return; }
				lent++;
				const some = rest.subarray(0, Math.min(rest.length, view.byteLength));
				new Uint8Array(view.buffer, view.byteOffset).set(some);
				rest = rest.subarray(some.length);
				c.byobRequest.respond(some.length);
			} }), { headers: { 'Muster-Offset': '0' } });
		};
		const log = new Log('1-1', 0, 'both', 0), text = new TextDecoder();
		await log.follow();
		let wrong = '';
		for (let i = 0; i < log.rows; i++) {
			const has = text.decode(log.buf.subarray(...log.bounds(i)));
			if (has + '\n' !== line(log.place(i) / 16)) wrong ||= has + ' at ' + log.place(i);
		}
		return { Size: log.size, Rows: log.rows, Pieces: pieces, Lent: lent, Wrong: wrong, Last: text.decode(log.buf.subarray(...log.bounds(log.rows - 1))) };
	})()`)
	if got.Size != 512*65536 || got.Rows < 1000 || got.Wrong != "" || got.Last != "000000002097151" {
		t.Errorf("got the log %+v, want all of it in order", got)
	}
	if got.Pieces == 0 || got.Lent != got.Pieces {
		t.Errorf("got %d of %d pieces read into the present buffer, want all", got.Lent, got.Pieces)
	}
}

// The positions of rows are kept when rows are dropped, and survive a row that is as long as all that is kept.
func TestRowsOfALogStayCorrectWhenDropped(t *testing.T) {
	tab := page(t, daemon{}, "/")
	same := eval[bool](t, tab, `(async () => { `+modules+`
		const { Indexer } = await load('ansi.js'), lines = new Uint8Array(200000).fill(10), index = new Indexer(100);
		index.feed(lines, lines.length, false);
		const { offsets, styles } = index, most = styles.length;
		for (let n = 0; n < 5; n++) { index.shift(150000); index.feed(lines, lines.length, false); }
		index.reset(0);
		index.feed(lines, lines.length, false);
		return index.count === 200000 && index.offsets === offsets && index.styles === styles && styles.length === most && index.offsets[199999] === 199999;
	})()`)
	if !same {
		t.Error("dropped rows left memory behind, or are wrong")
	}
	rows, err := chromedp.Run(tab, chromedp.Evaluate[[]int](`(async () => { `+modules+`
		const { Indexer } = await load('ansi.js'), index = new Indexer(100), b = new Uint8Array(4096).fill(0);
		index.feed(b, 2048, false);
		const forgotten = index.shift(2000);
		b[48] = 13; b[49] = 65; b[50] = 10; b[51] = 66;
		index.feed(b, 52, false);
		return [forgotten, index.count, ...index.offsets.subarray(0, index.count)];
	})()`, chromedp.EvalAwaitPromise))
	if err != nil || len(rows) != 4 || rows[0] != 0 || rows[1] != 2 || rows[2] != 49 || rows[3] != 51 {
		t.Errorf("after the front of a long row was dropped: got rows %v: %v, want 0, 2, 49 and 51", rows, err)
	}
}
