import { Link } from '@tanstack/react-router';
import type { Item } from '../../data/entities';

/** Name of the session that an idle checker stopped, with a link to its drawer. */
export function SessionLink({ item }: { item: Item }) {
  return (
    <Link to="/sessions" search={{ tab: 'all', session: String(item['session_id']) }}>
      {String(item['session'])}
    </Link>
  );
}
