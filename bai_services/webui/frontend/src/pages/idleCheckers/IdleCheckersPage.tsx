import { EntityPage } from '../../components/entities/EntityPage';
import { IDLE_ENTITIES } from './entities';
import { ReplayPanel } from './ReplayPanel';

/** Idle checkers, their bindings to scopes, and the decisions to stop sessions. */
export function IdleCheckersPage() {
  return (
    <EntityPage
      path="/idle-checkers"
      title="pages.idle-checkers"
      entities={IDLE_ENTITIES}
      details={(entity, item) =>
        entity.name === 'idle-checkers' && item['type'] === 'utilization' ? (
          <ReplayPanel
            key={String(item['id'])}
            checker={String(item['id'])}
            windowSeconds={Number(item['max_seconds'])}
          />
        ) : null
      }
    />
  );
}
