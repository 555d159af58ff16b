# ffmpeg encodes 20 frames of a test picture, and decodes them
# package: ffmpeg
ffmpeg -v error -threads 1 -f lavfi -i testsrc=size=320x240:rate=10 -frames:v 20 -c:v mpeg4 -threads 1 -bitexact /tmp/film.avi
ffmpeg -v error -threads 1 -i /tmp/film.avi -f md5 -
