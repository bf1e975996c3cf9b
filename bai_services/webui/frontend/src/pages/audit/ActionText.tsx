import { Tooltip } from 'antd';
import { useTranslation } from 'react-i18next';

/** The action of an audit entry in words; its code, which filters use, is the tooltip. */
export function ActionText({ action }: { action: string }) {
  const { t } = useTranslation();
  const [entity = '', verb = ''] = action.split('.');
  return (
    <Tooltip title={action}>
      <span>
        {t('audit-log.action-text', {
          entity: t(`audit-log.entity-${entity}`, entity),
          verb: t(`audit-log.verb-${verb}`, verb)
        })}
      </span>
    </Tooltip>
  );
}
