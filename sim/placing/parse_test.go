package placing
import "strconv"
func parse(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
