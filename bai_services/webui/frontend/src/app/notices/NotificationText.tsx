import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import type { Item } from '../../data/entities';
import { useMarkRead } from '../../data/notifications';
import { readEndpointsSearch } from '../../pages/endpoints/search';
import { readPipelinesSearch } from '../../pages/pipelines/search';
import { reasonText, type Reason } from '../../i18n/reasonText';

interface NotificationTextProps {
  item: Item;
  onNavigate?: () => void;
}

/** The text of a notification, with a link to the session or page that it is about. */
export function NotificationText({ item, onNavigate }: NotificationTextProps) {
  const { i18n } = useTranslation();
  const markRead = useMarkRead();
  const coded = item['coded'] as Reason['coded'];
  const text = reasonText(i18n, { message: String(item['text']), coded });
  const link = new URL(String(item['link']), window.location.origin);
  const [page, session] = link.pathname.slice(1).split('/');
  const search = Object.fromEntries(link.searchParams);
  const onClick = () => {
    markRead.mutate(String(item['id']));
    onNavigate?.();
  };
  const shown = (
    <span
      className="bai-notification-text"
      style={{ fontWeight: item['is_read'] ? 'normal' : 'bold' }}
    >
      {text}
    </span>
  );
  switch (page) {
    case 'sessions':
      return (
        <Link
          to="/sessions"
          search={{ tab: 'all', ...(session ? { session } : {}) }}
          onClick={onClick}
        >
          {shown}
        </Link>
      );
    case 'pipelines':
      return (
        <Link to="/pipelines" search={readPipelinesSearch(search)} onClick={onClick}>
          {shown}
        </Link>
      );
    case 'endpoints':
      return (
        <Link to="/endpoints" search={readEndpointsSearch(search)} onClick={onClick}>
          {shown}
        </Link>
      );
    case 'data':
    case 'agents':
    case 'storage':
    case 'reservations':
    case 'statistics':
      return (
        <Link to={`/${page}`} onClick={onClick}>
          {shown}
        </Link>
      );
    default:
      return shown;
  }
}
