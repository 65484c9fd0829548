package units

import "testing"

func TestFiguresAreWrittenWithTheirUnits(t *testing.T) {
	for got, want := range map[string]string{
		Span(0): "0s", Span(0.00001234): "12µs", Span(0.0009955): "1.0ms", Span(0.0123): "12.3ms", Span(0.0999): "0.10s", Span(3.254): "3.25s", Span(9.996): "10.0s", Span(99.96): "1m40s", Span(725): "12m05s",
		Span(3599.6): "1h00m", Span(19920): "5h32m", Span(86399.9): "1d00h", Span(273600): "3d04h", Span(40e6): "463d", Span(4e11): "4629630d", Span(-725): "-12m05s",
		Percent(0.8123): "81.2%", Count(1234): "1,234", Count(-999999): "-999,999", Count(1_000_000): "1.00M", Count(int64(12_345_678_901)): "12.3G", Count(999_960_000): "1.00G",
		Digits(0): "0", Digits(1.096): "1.10", Digits(99.96): "100", Digits(12.34): "12.3",
		Bytes(0): "0B", Bytes(999): "999B", Bytes(1024): "1.00KiB", Bytes(23.5 * (1 << 30)): "23.5GiB",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
