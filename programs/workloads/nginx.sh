# nginx with two processes serves 4,000 requests over TCP
# package: nginx-light apache2-utils
mkdir -p /tmp/www /tmp/logs
seq 2000 > /tmp/www/index.html
cat > /tmp/nginx.conf <<'END'
worker_processes 2;
pid /tmp/nginx.pid;
error_log /tmp/logs/error;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path /tmp/logs/a; proxy_temp_path /tmp/logs/b; fastcgi_temp_path /tmp/logs/c;
  uwsgi_temp_path /tmp/logs/d; scgi_temp_path /tmp/logs/e;
  server { listen 127.0.0.1:8080; root /tmp/www; }
}
END
/usr/sbin/nginx -c /tmp/nginx.conf
ab -q -n 4000 -c 8 http://127.0.0.1:8080/ | grep -E 'Complete|Failed|HTML'
/usr/sbin/nginx -c /tmp/nginx.conf -s stop
